"""Packaged accelerate configurations: ddp, fsdp2, zero2.

`goldimask train RECIPE --nproc N --launch fsdp2` reads them; so does
`accelerate launch --config_file FILE -m goldimask train RECIPE`.
"""
