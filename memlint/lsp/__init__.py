"""The language server: what editors show while code is written. `server` talks to them, `analyst` finds."""
