"""The lab: methods x seeds x backbones on a small model, tables in the paper's form."""
