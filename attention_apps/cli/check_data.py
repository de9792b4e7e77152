"""Says what is wrong with a data set, with file and line, without training."""

import argparse
import json

from attention_apps.cli.quiet import import_tensorflow_quietly
from attention_apps.cli.tasks import add_data_arguments, make_application, parse_columns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(options: argparse.Namespace) -> int:
    import_tensorflow_quietly()
    application = make_application(options)
    report = application.check_data(
        options.data, options.validation, parse_columns(options.column), quiet=options.quiet
    )
    print(json.dumps(report.to_dict()) if options.json else report.to_text())
    return 1 if report.counts else 0
