"""The measurements behind the documentation, one file each; every one is a command."""
