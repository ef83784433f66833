"""Tables in chunks are the table that is read at once."""

import gzip

import pytest

from pluribus.data.table_chunks import read_table, table_chunks
from pluribus.errors import InputError


def write(folder, count=7):
    path = folder / "table.csv"
    path.write_text("id,a\n" + "".join(f"r{row},{row}\n" for row in range(count)))
    return path


def test_chunks_of_a_csv_file_are_its_rows(tmp_path):
    whole, chunks = read_table(write(tmp_path)), list(table_chunks(tmp_path / "table.csv", rows=3))
    assert [len(chunk) for chunk in chunks] == [3, 3, 1]
    assert [cell for chunk in chunks for cell in chunk.cells["id"]] == list(whole.cells["id"])
    assert [line for chunk in chunks for line in chunk.lines] == list(whole.lines) == list(range(2, 9))


def test_chunks_of_a_parquet_file_are_its_rows(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": list(range(7))}), tmp_path / "t.parquet")
    chunks = list(table_chunks(tmp_path / "t.parquet", rows=3))
    assert [list(chunk.cells["a"]) for chunk in chunks] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [line for chunk in chunks for line in chunk.lines] == list(range(1, 8))


def test_a_table_without_rows_is_refused(tmp_path):
    with pytest.raises(InputError, match="header and rows, got no rows"):
        list(table_chunks(write(tmp_path, count=0)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\nZürich,1\n".encode("latin-1"), "text in UTF-8, got the byte 0xfc.*WINDOWS-1252 -t UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "text in UTF-8, got the byte 0xff.*UTF-16 -t UTF-8"),
        # Without a time, so that the bytes are the same in every process.
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "got a packed file. Unpack it: gunzip"),
    ],
    ids=["latin-1", "utf-16", "packed"],
)
def test_files_that_are_no_text_are_refused_with_the_remedy(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_table(path)


def test_a_header_that_is_too_long_is_refused_as_any_row_is(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"{'a' * 200_000}\n1\n")
    with pytest.raises(InputError, match="must be a CSV file, got field larger"):
        read_table(path)
