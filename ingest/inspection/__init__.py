"""What a partner's CSV holds, what each read mode would do to it, and a report to send back."""
