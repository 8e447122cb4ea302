"""zefuse: a torch.compile backend. ``torch.compile(model, backend="zefuse")`` needs no import of this package."""

__version__ = "0.1.0"
