"""Lists what is wrong with a data set, with file and line, without training."""

import argparse
import json

from attention_apps.cli.arguments import add_data_arguments, make_application, parse_columns
from attention_apps.cli.quiet import import_tensorflow_quietly

_EXAMPLES = """examples:
  attention-apps check-data image_captioning --data photos.csv
  attention-apps check-data speech_recognition --data calls.csv --validation held_out.csv --json
  attention-apps check-data text_summarization --data news.jsonl --column summary=headline
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    add_data_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(options: argparse.Namespace) -> int:
    import_tensorflow_quietly(options.quiet)
    application = make_application(options)
    report = application.check_data(
        options.data, options.validation, parse_columns(options.column), quiet=options.quiet
    )
    print(json.dumps(report.to_dict()) if options.json else report.to_text())
    return 1 if report.counts else 0
