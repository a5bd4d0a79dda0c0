"""Sessions inside the training loops of other libraries: Transformers, Lightning, Accelerate.

Each module imports its library, which a script installs itself, and uses only public names of the
library and of `autoscaler.training`.
"""
