"""One module a version. A migration that was released is never changed; a new one follows it."""
