"""Metrics: pure functions of a prediction and a target, each with a row that says how to read it.

A new one needs its function, a row in `ROWS` of its file, and a test. Values are Python floats.
"""

from pluribus.metrics.bootstrap import bootstrap_intervals, percentile_interval
from pluribus.metrics.calibration import (
    Reliability,
    adaptive_ece,
    class_conditional_ece,
    ece,
    mce,
    reliability,
)
from pluribus.metrics.costs import Costs, decide, expected_costs, parse_costs
from pluribus.metrics.discrimination import balanced_accuracy, class_auprc, class_auroc
from pluribus.metrics.diversity import ambiguity, disagreement, error_correlation, mutual_information
from pluribus.metrics.joint import dyadic_sets, joint_nll
from pluribus.metrics.metric import Metric
from pluribus.metrics.ood import CRITERIA, aupr, auroc, fpr95, ood_scores
from pluribus.metrics.registry import METRICS, evaluate_all, evaluate_ood, metrics_for
from pluribus.metrics.regression import (
    coverage_gap,
    crps,
    gaussian_nll,
    interval_coverage,
    interval_width,
    log_predictive_density,
    mae,
    pinball,
    quantile_loss,
    rmse,
    sharpness,
)
from pluribus.metrics.scoring import accuracy, brier, macro_f1, nll, top_k_accuracy
from pluribus.metrics.segmentation import dice, iou
from pluribus.metrics.selective import RiskCoverage, aurc, excess_aurc, risk_coverage
from pluribus.metrics.shift import ShiftErrors, mean_corruption_error, relative_mean_corruption_error
from pluribus.metrics.threshold import Threshold

__all__ = [
    "CRITERIA",
    "METRICS",
    "Costs",
    "Metric",
    "Reliability",
    "RiskCoverage",
    "ShiftErrors",
    "Threshold",
    "accuracy",
    "adaptive_ece",
    "ambiguity",
    "aupr",
    "aurc",
    "auroc",
    "balanced_accuracy",
    "bootstrap_intervals",
    "brier",
    "class_auprc",
    "class_auroc",
    "class_conditional_ece",
    "coverage_gap",
    "crps",
    "decide",
    "dice",
    "disagreement",
    "dyadic_sets",
    "ece",
    "error_correlation",
    "evaluate_all",
    "evaluate_ood",
    "excess_aurc",
    "expected_costs",
    "fpr95",
    "gaussian_nll",
    "interval_coverage",
    "interval_width",
    "iou",
    "joint_nll",
    "log_predictive_density",
    "macro_f1",
    "mae",
    "mce",
    "mean_corruption_error",
    "metrics_for",
    "mutual_information",
    "nll",
    "ood_scores",
    "parse_costs",
    "percentile_interval",
    "pinball",
    "quantile_loss",
    "relative_mean_corruption_error",
    "reliability",
    "risk_coverage",
    "rmse",
    "sharpness",
    "top_k_accuracy",
]
