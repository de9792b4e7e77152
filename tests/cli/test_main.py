"""What holds for every command, seen in a process of its own."""

import subprocess
import sys

CODE = """
import sys
from attention_apps.cli import demo, main

def run(options):
    for _ in range(100_000):
        print("a line that nobody reads")
    return 0

demo.run = run
sys.exit(main(["demo"]))
"""


def test_a_reader_that_goes_away_ends_the_command_without_a_word():
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        command.stdout.readline()
        command.stdout.close()
        assert command.stderr.read() == b""
        assert command.wait(60) == 1
