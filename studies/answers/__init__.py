"""Answers: what a run says about waiting, using, losing and paying."""
