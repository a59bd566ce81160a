//! Closed lists of words that state the meaning of a value in a request. All other words come from declarations.

/// Words that rank and do not name: they may be between a number and its noun.
pub(super) const RANK: &[&str] = &[
    "newest", "latest", "oldest", "last", "first", "next", "top", "most", "recent", "best", "worst", "biggest",
    "largest", "smallest", "longest", "shortest", "previous", "past", "bottom", "more", "new", "old", "different",
    "neuesten", "neueste", "neusten", "letzten", "letzte", "ersten", "altesten", "nachsten", "derniers", "dernieres",
    "premiers", "premieres", "recents", "recentes", "plus", "ultimos", "ultimas", "primeros", "primeras", "recientes",
    "mas", "nuevos", "最", "新", "近", "前", "的",
];

/// Words that may come before a bare number without naming its thing.
pub(super) const BEFORE_BARE: &[&str] = &[
    "the", "only", "just", "exactly", "precisely", "me", "them", "it", "my", "these", "those", "show", "list", "get",
    "give", "take", "use", "about", "around", "roughly", "approximately", "circa", "please", "die", "der", "den",
    "nur", "les", "los", "las", "solo", "seulement", "make",
];

/// Words between a name and its value: `count of 2`, `count is 2`.
pub(super) const BETWEEN: &[&str] = &[
    "of", "is", "to", "equals", "equal", "be", "at", "as", "the", "was", "ist", "est", "es", "a", "set", "named",
    "called", "number", "für", "auf", "von",
];

/// Words that end a phrase of nouns.
pub(super) const ENDS: &[&str] = &[
    "in", "on", "at", "from", "to", "for", "with", "without", "by", "and", "or", "but", "not", "than", "that", "which",
    "who", "is", "are", "was", "then", "since", "until", "till", "before", "after", "as", "into", "over", "under",
    "per", "please", "now", "if", "when", "times", "via", "using", "ones", "im", "aus", "mit", "und", "oder", "aber",
    "nicht", "bis", "fur", "nach", "dans", "en", "avec", "sans", "et", "ou", "pour", "con", "sin", "y", "o", "pero",
    "por", "para", "bitte", "von", "no", "instead", "rather",
];

/// Words between a number and its noun: `two of my mails`.
pub(super) const THROUGH: &[&str] =
    &["of", "my", "our", "your", "the", "these", "those", "de", "des", "der", "den", "mes", "mis", "meiner"];

/// Words that deny the words after them.
pub(super) const NEGATORS: &[&str] = &[
    "not", "no", "without", "dont", "doesnt", "never", "except", "excluding", "exclude", "skip", "skipping", "ignore",
    "ignoring", "nor", "omit", "omitting", "avoid", "ohne", "nicht", "kein", "keine", "keinen", "ausser", "sans",
    "pas", "sauf", "sin", "excepto", "不", "没", "别", "非", "无", "除",
];

/// Pairs of words that deny.
pub(super) const NEGATING_PAIRS: &[(&str, &str)] = &[
    ("instead", "of"),
    ("rather", "than"),
    ("other", "than"),
    ("apart", "from"),
    ("anstatt", "von"),
    ("statt", "der"),
];

/// Words for everything: the words after them and "but" are denied.
pub(super) const ALL: &[&str] = &["any", "anything", "all", "every", "everything", "each"];

/// Words between alternatives, of which one is meant.
pub(super) const ALTERNATIVES: &[&str] = &["or", "oder", "ou", "o"];

/// Words that may be between a negation and the denied word.
pub(super) const AFTER_NEGATION: &[&str] = &[
    "the", "a", "an", "any", "my", "our", "your", "use", "take", "sort", "just", "exactly", "all", "those", "these",
    "include", "including", "do", "want", "need", "give", "me", "show", "run", "check", "die", "den", "das", "les",
    "el", "los", "las", "le", "la", "of", "in", "on", "at", "from", "since", "until", "before", "after", "as", "to",
    "with", "for", "by", "keep", "im", "seit", "bis", "要", "用",
];

/// Articles before nouns.
pub(super) const ARTICLES: &[&str] =
    &["the", "a", "an", "le", "la", "les", "el", "los", "las", "den", "dem", "der", "die", "das"];

/// Words by unit.
const UNITS: &[(&str, &[&str])] = &[
    ("ms", &["ms", "millisecond", "milliseconds", "millis", "millisekunden", "毫秒"]),
    (
        "s",
        &[
            "s", "sec", "secs", "second", "seconds", "sekunde", "sekunden", "seconde", "secondes", "segundo",
            "segundos", "秒",
        ],
    ),
    ("min", &["min", "mins", "minute", "minutes", "minuten", "minuto", "minutos"]),
    ("h", &["h", "hr", "hrs", "hour", "hours", "stunde", "stunden", "heure", "heures", "hora", "horas"]),
    ("day", &["d", "day", "days", "tag", "tage", "tagen", "jour", "jours", "dia", "dias", "天"]),
    ("week", &["week", "weeks", "woche", "wochen", "semaine", "semaines", "semana", "semanas", "周"]),
    ("month", &["month", "months", "monat", "monate", "monaten", "mois", "mes", "meses"]),
    ("year", &["year", "years", "yr", "yrs", "jahr", "jahre", "jahren", "annee", "annees", "ans", "ano", "anos", "年"]),
    ("%", &["%", "percent", "percentage", "prozent", "pourcent"]),
    ("eur", &["€", "eur", "euro", "euros"]),
    ("usd", &["$", "usd", "dollar", "dollars", "bucks"]),
    ("gbp", &["£", "gbp", "pound", "pounds"]),
    ("yen", &["¥", "yen", "yuan", "元", "块"]),
    ("byte", &["byte", "bytes"]),
    ("kb", &["kb", "kib", "kilobyte", "kilobytes"]),
    ("mb", &["mb", "mib", "megabyte", "megabytes"]),
    ("gb", &["gb", "gib", "gigabyte", "gigabytes"]),
    ("mm", &["mm"]),
    ("cm", &["cm"]),
    ("m", &["m", "meter", "meters", "metre", "metres"]),
    ("km", &["km", "kilometer", "kilometers", "kilometre", "kilometres", "kilometern"]),
    ("mile", &["mile", "miles", "mi"]),
    ("g", &["g", "gram", "grams", "gramm"]),
    ("kg", &["kg", "kilo", "kilos", "kilogram", "kilograms"]),
    ("degree", &["°", "degree", "degrees", "celsius", "fahrenheit"]),
    ("px", &["px", "pixel", "pixels"]),
    ("clock", &["am", "pm", "oclock", "uhr", "点"]),
];

/// Unit that a folded word names.
pub(super) fn unit(word: &str) -> Option<&'static str> {
    UNITS.iter().find(|(_, words)| words.contains(&word)).map(|(unit, _)| *unit)
}

/// Words in names of parameters that are counts.
pub(super) const COUNTS: &[&str] = &[
    "count", "n", "num", "number", "limit", "max", "maximum", "top", "amount", "quantity", "total", "first", "last",
    "head", "many", "items", "entries", "rows", "results", "k", "take", "anzahl", "wieviele", "combien", "nombre",
    "cuantos", "cuantas", "numero", "lines", "copies", "times",
];

/// Words of descriptions that do not name the counted things.
pub(super) const GENERIC: &[&str] = &[
    "how", "many", "number", "count", "maximum", "minimum", "max", "min", "most", "at", "least", "limit", "default",
    "value", "take", "show", "list", "return", "use", "process", "include", "handle", "fetch", "read", "get", "print",
    "should", "will", "to", "be", "are", "amount", "total", "only", "up", "optional", "given", "each", "anzahl", "wie",
    "viele", "der", "die", "das", "den",
];

/// Words that place a value at the lower end.
pub(super) const LOW: &[&str] = &[
    "from", "since", "after", "start", "starting", "begin", "beginning", "min", "minimum", "low", "lower", "first",
    "between", "von", "seit", "ab", "desde", "depuis", "least",
];
/// Words that place a value at the upper end.
pub(super) const HIGH: &[&str] = &[
    "to", "until", "till", "before", "end", "ending", "max", "maximum", "high", "upper", "last", "through", "bis",
    "hasta", "most",
];

/// Words in names of parameters that are dates.
pub(super) const DATES: &[&str] = &[
    "date", "day", "since", "until", "deadline", "due", "datum", "fecha", "birthday", "when", "asof", "start", "end",
    "from", "to", "before", "after",
];
/// Words in names of parameters that are paths.
pub(super) const PATHS: &[&str] = &[
    "file", "files", "path", "paths", "dir", "directory", "folder", "filename", "csv", "datei", "ordner", "fichier",
    "archivo", "spreadsheet", "logfile",
];
/// Words in names of parameters that are targets.
pub(super) const TARGETS: &[&str] =
    &["output", "out", "target", "dest", "destination", "to", "into", "save", "write", "result"];
/// Words before a path that is a target.
pub(super) const TOWARDS: &[&str] = &["to", "into", "onto", "as", "nach", "vers"];
/// Words before a path that is not the subject of the request.
pub(super) const BESIDE: &[&str] = &[
    "with", "using", "via", "by", "against", "than", "like", "unlike", "per", "see", "and", "or", "mit", "avec", "con",
];
/// Words in names of parameters that are addresses of pages.
pub(super) const LINKS: &[&str] = &["url", "uri", "link", "website", "page", "site", "endpoint"];
/// Words in names of parameters that are mail addresses.
pub(super) const ADDRESSES: &[&str] = &["email", "recipient", "address", "to", "from", "sender", "mailto"];
