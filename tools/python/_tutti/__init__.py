# SPDX-License-Identifier: Apache-2.0
"""What a wheel's entry points call. It imports neither tutti nor torch by itself: the programs need neither, and `import torch`
calls announce()."""
