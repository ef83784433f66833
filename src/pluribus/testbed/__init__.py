"""Score methods against an exact posterior: random functions whose uncertainty is known.

Oleksienko & Iosifidis, "Layer Ensembles", IEEE MLSP 2023, §IV, after Osband et al., "The neural
testbed", 2021.
"""
