"""Export an ensemble as one file that other programs run: ONNX, PyTorch 2 or OpenVINO."""
