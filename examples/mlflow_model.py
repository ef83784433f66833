"""An exported ensemble as a model of MLflow (pyfunc): answers with uncertainty for every row of a DataFrame.

    pip install mlflow-skinny pandas 'pluribus[serve]'
    python examples/mlflow_model.py pluribus_runs/train/ensemble.onnx mlflow_model
    mlflow models predict -m mlflow_model -i rows.csv -t csv

MLflow stores this file, not a pickle of it, and runs it when the model is loaded. PyTorch is not needed.
"""

import sys
from pathlib import Path

import mlflow
import pandas as pd

from pluribus.serving.answers import Answers
from pluribus.serving.exported import Exported
from pluribus.serving.preprocessing import Preprocessing

FILE = "export"


class ExportedEnsemble(mlflow.pyfunc.PythonModel):
    """Rows of a DataFrame in, one row of label, confidence, entropy, set and flag for each out."""

    def load_context(self, context):
        self.exported = Exported(Path(context.artifacts[FILE]))
        self.preprocessing = Preprocessing(self.exported)
        self.answers = Answers(self.exported.description, self.preprocessing.target)

    def predict(self, context, model_input, params=None):
        # MLflow hands over NaN for an empty cell.
        frame = model_input.astype(object).where(model_input.notna(), None)
        rows = frame.to_dict("records")
        if self.preprocessing.columns is None:
            rows = model_input.to_numpy().tolist()
        arrays, notes = self.preprocessing.prepare(rows)
        return pd.DataFrame(self.answers.make(self.exported.run(arrays), notes))


def save(export, folder):
    """Write a model of MLflow to a folder that does not exist yet.

    Args:
        export: The `.onnx` file of `pluribus export`; its description is inside of it.
        folder: The folder to write.
    """
    mlflow.pyfunc.save_model(
        str(folder),
        python_model=__file__,
        artifacts={FILE: str(export)},
        pip_requirements=["pluribus", "onnxruntime", "pandas"],
    )


# MLflow takes this value when it runs the file.
mlflow.models.set_model(ExportedEnsemble())

if __name__ == "__main__":
    save(*sys.argv[1:])
