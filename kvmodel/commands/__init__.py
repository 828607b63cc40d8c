"""The commands of the command line, one module each; a module is imported when its command is asked for."""
