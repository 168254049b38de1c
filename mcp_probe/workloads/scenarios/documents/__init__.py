"""The figures of the documents, as printed; what follows from them is computed where it is used."""
