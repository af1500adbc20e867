"""Packaged accelerate configurations: ddp, fsdp2, zero2.

accelerate launch --config_file "$(goldimask launch-file fsdp2)" ... is not needed for one machine:
`goldimask train RECIPE --nproc N --launch fsdp2` reads the same files.
"""
