"""Kernels of the models that ContiFormer is compared with. Nothing of ContiFormer itself needs them."""
