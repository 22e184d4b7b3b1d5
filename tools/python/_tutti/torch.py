# SPDX-License-Identifier: Apache-2.0
"""Makes the backend "tutti" known to torch.distributed. The extension module is loaded when the first group is made."""


def _create(options, backend_options=None):
    import tutti.torch
    return tutti.torch._create(options, backend_options)


def register():
    """For the entry point group torch.distributed.backends (torch 2.14 and later)."""
    import torch.distributed
    if torch.distributed.is_available() and "tutti" not in torch.distributed.Backend.backend_list:
        torch.distributed.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])


def announce():
    """For the entry point group torch.backends, which `import torch` calls (torch 2.5 and later). An error here would be one
    of `import torch`; the same one comes when the backend is used."""
    try:
        register()
    except Exception:
        pass
