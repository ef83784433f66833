"""The methods, one file per paper. A new one needs its file, its test, its docs page, and a line here."""

from pluribus.methods.batch_ensemble import BatchEnsemble
from pluribus.methods.bayes_by_backprop import BayesByBackprop
from pluribus.methods.deep_ensembles import DeepEnsembles
from pluribus.methods.deep_sub_ensembles import DeepSubEnsembles
from pluribus.methods.drop_connect import DropConnect
from pluribus.methods.early_exit import EarlyExit
from pluribus.methods.ensemble_model_patching import ECMP, EMP
from pluribus.methods.hypermodel import Hypermodel
from pluribus.methods.laplace import Laplace
from pluribus.methods.layer_ensembles import LayerEnsembles
from pluribus.methods.lora_ensembles import LoRAEnsembles
from pluribus.methods.masksembles import Masksembles
from pluribus.methods.mc_dropout import MCDropout
from pluribus.methods.mimmo import MIMMO
from pluribus.methods.mimo import MIMO
from pluribus.methods.packed_ensembles import PackedEnsembles
from pluribus.methods.single import Single
from pluribus.methods.single_architecture_ensemble import SAE
from pluribus.methods.swag import SWAG
from pluribus.methods.vnn import VNN

__all__ = [
    "ECMP",
    "EMP",
    "MIMMO",
    "MIMO",
    "SAE",
    "SWAG",
    "VNN",
    "BatchEnsemble",
    "BayesByBackprop",
    "DeepEnsembles",
    "DeepSubEnsembles",
    "DropConnect",
    "EarlyExit",
    "Hypermodel",
    "Laplace",
    "LayerEnsembles",
    "LoRAEnsembles",
    "MCDropout",
    "Masksembles",
    "PackedEnsembles",
    "Single",
]
