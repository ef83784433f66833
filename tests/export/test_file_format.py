"""Every format fills in the interface."""

from pluribus.export.exporting import FORMATS
from pluribus.export.file_format import FileFormat


def test_formats_have_a_name_a_suffix_and_a_tolerance():
    assert list(FORMATS) == ["onnx", "pt2", "openvino"]
    for name, form in FORMATS.items():
        assert isinstance(form, FileFormat)
        assert form.name == name
        assert form.suffix.startswith(".")
        assert 0 < form.tolerance < 1e-4
    assert len({form.suffix for form in FORMATS.values()}) == len(FORMATS)
