"""The commands, a module each: words in, a `Job` out."""
