"""Ensembles as scikit-learn estimators, for pipelines, searches and cross-validation."""

from pluribus.sklearn.classifier import EnsembleClassifier
from pluribus.sklearn.deviation import Deviation
from pluribus.sklearn.regressor import EnsembleRegressor

__all__ = ["Deviation", "EnsembleClassifier", "EnsembleRegressor"]
