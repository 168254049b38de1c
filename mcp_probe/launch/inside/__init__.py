"""The probe in a server that runs already: how it gets in, what it does there, and how it leaves."""
