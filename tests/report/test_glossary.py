"""Glossary: text is escaped, and terms are explained where they first stand."""

from pluribus.report.glossary import GLOSSARY, breakable, escaped, explained, glossed, term


def test_text_is_escaped_in_elements_and_attributes():
    assert escaped("<a b='c'>\"") == "&lt;a b=&#x27;c&#x27;&gt;&quot;"


def test_names_may_be_broken_where_words_end():
    assert breakable("mc_dropout(p=<1)") == "mc_<wbr>dropout<wbr>(p=&lt;1)"


def test_terms_show_their_meaning():
    assert term("A", "x<y") == '<span class="term" tabindex="0" data-tip="x&lt;y">A</span>'
    assert glossed("entropy") == term("entropy", GLOSSARY["entropy"])


def test_term_is_explained_once():
    text = explained("entropy, and entropy again")
    assert text.count("data-tip") == 1
    assert text.endswith(", and entropy again")


def test_words_that_hold_a_term_are_left_alone():
    assert explained("entropying") == "entropying"


def test_longer_terms_go_before_those_they_hold():
    longer = max((name for name in GLOSSARY if name.endswith(" ECE")), key=len)
    assert explained(longer).count("data-tip") == 1
    assert explained(longer).endswith(f">{longer}</span>")
