"""The ways in which a run ends without the command's own exit status."""


class Unavailable(Exception):
    """This machine cannot run the guests: a tool is missing that its packages do not have."""


class Failed(Exception):
    """Something that should have worked did not; the text says what and shows the end of the log."""


class TimedOut(Failed):
    """The guests or the command took longer than allowed."""
