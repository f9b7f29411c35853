"""The dead letter office: refused records are found, explained, corrected, discarded or sent back."""
