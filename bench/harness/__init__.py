"""Starts clusters of real nodes, measures them and reports. One module, one noun."""
