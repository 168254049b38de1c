"""What-if: a full recording run again as a discrete-event simulation, unchanged and with changes."""
