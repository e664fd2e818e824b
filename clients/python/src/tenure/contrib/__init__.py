"""Adapters for schedulers and frameworks. Each needs the library that it is for; the extras of the package name them."""
