"""Sentences in languages other than English, on which models for English should be unsure."""

# ruff: noqa: RUF001
# Article 1 of the Universal Declaration of Human Rights, which is in the public domain: a sentence a line.
SENTENCES = {
    "de": """Alle Menschen sind frei und gleich an Würde und Rechten geboren.
Sie sind mit Vernunft und Gewissen begabt und sollen einander im Geist der Brüderlichkeit begegnen.""",
    "fr": """Tous les êtres humains naissent libres et égaux en dignité et en droits.
Ils sont doués de raison et de conscience et doivent agir les uns envers les autres dans un esprit de fraternité.""",
    "es": """Todos los seres humanos nacen libres e iguales en dignidad y derechos.
Dotados como están de razón y conciencia, deben comportarse fraternalmente los unos con los otros.""",
    "it": """Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti.
Essi sono dotati di ragione e di coscienza e devono agire gli uni verso gli altri in spirito di fratellanza.""",
    "pt": """Todos os seres humanos nascem livres e iguais em dignidade e em direitos.
Dotados de razão e de consciência, devem agir uns para com os outros em espírito de fraternidade.""",
    "nl": """Alle mensen worden vrij en gelijk in waardigheid en rechten geboren.
Zij zijn begiftigd met verstand en geweten, en behoren zich jegens elkander in een geest van broederschap te gedragen.""",  # noqa: E501
    "sv": """Alla människor är födda fria och lika i värde och rättigheter.
De har utrustats med förnuft och samvete och bör handla gentemot varandra i en anda av broderskap.""",
    "pl": """Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.
Są oni obdarzeni rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa.""",
    "ru": """Все люди рождаются свободными и равными в своем достоинстве и правах.
Они наделены разумом и совестью и должны поступать в отношении друг друга в духе братства.""",
    "fi": """Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan.
Heille on annettu järki ja omatunto, ja heidän on toimittava toisiaan kohtaan veljeyden hengessä.""",
    "hu": """Minden emberi lény szabadon születik és egyenlő méltósága és joga van.
Az emberek, ésszel és lelkiismerettel bírván, egymással szemben testvéri szellemben kell hogy viseltessenek.""",
    "tr": """Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.
Akıl ve vicdana sahiptirler ve birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler.""",
}
