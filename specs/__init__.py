"""The specs that ship: read by kvmodel, importable so that editors and type checkers follow them."""
