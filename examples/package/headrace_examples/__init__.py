"""One plugin of each kind, as docs/plugins.md explains them."""
