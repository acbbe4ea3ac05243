"""The launcher's own options. Every step reads them first, so this module imports nothing at its top."""

from __future__ import annotations


class Settings:
    """The launcher's own options, and the compiler's command line."""

    __slots__ = ("formats", "lto", "nop", "providers", "relative_table", "site_table", "target_os", "verbose", "words")

    def __init__(self) -> None:
        """Start with the defaults; an empty string or list leaves the choice to `instrument`."""
        self.nop = ""
        self.formats: list[str] = []
        self.lto = "recompile"
        self.providers: list[str] = []  # paths of .d files
        self.target_os = ""
        self.relative_table = False  # of patchable function entries, in place of the compiler's
        self.site_table = False  # a loaded table of the sites
        self.verbose = False
        self.words: list[str] = []  # COMPILER ARGS


def read_options(arguments: list[str]) -> Settings:
    """Return the settings that `[OPTIONS] [--] COMPILER ARGS` gives; no words mean that help is wanted.

    Raises ValueError, with what is wrong.
    """
    settings = Settings()
    position = 0
    while position < len(arguments):
        word = arguments[position]
        position += 1
        if word == "--":
            settings.words = arguments[position:]
            break
        if word[:1] != "-":
            settings.words = arguments[position - 1 :]
            break
        if word in ("-h", "--help"):
            return settings
        if word in ("-v", "--verbose"):
            settings.verbose = True
            continue
        name, equals, value = word.partition("=")
        from ..options import STEP_OPTIONS  # only who gives options needs them

        option = STEP_OPTIONS.get(name)
        if option is None or (option[0] is None and equals):
            raise ValueError(f"there is no option {word if option else name}")
        if option[0] is not None and not equals:
            if position == len(arguments):
                raise ValueError(f"{name} needs a value")
            value = arguments[position]
            position += 1
        _set_option(settings, name, value, option[0])
    if not settings.words:
        raise ValueError("there is no compiler to run")
    return settings


def _set_option(settings: Settings, name: str, value: str, choices: tuple[str, ...] | None) -> None:
    if choices and name != "--formats" and value not in choices and (value or name != "--target-os"):
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")
    if name in ("--nop", "--lto", "--target-os"):
        setattr(settings, name[2:].replace("-", "_"), value)
    elif name == "--patchable-table":
        settings.relative_table = value == "relative"
    elif name == "--site-table":
        settings.site_table = True
    elif name == "--provider":
        settings.providers.append(value)
    elif name == "--formats":
        known = choices or ()
        for item in value.split(","):
            if item not in known:
                raise ValueError(f"--formats takes some of {', '.join(known)}, with commas, not {item!r}")
            settings.formats.append(item)
