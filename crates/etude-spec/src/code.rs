//! Codes of definition diagnostics; `etude explain` has a page for each.

use std::fmt;

macro_rules! codes {
    ($($variant:ident = $code:literal, $title:literal;)*) => {
        /// A kind of fault in a definition. The code is contract; `etude explain CODE` has a page for each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = concat!("`", $code, "`: ", $title)] $variant,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The code as printed, such as `P0201`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code),* }
            }

            /// Short description of the fault.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),* }
            }
        }
    };
}

codes! {
    Unreadable = "P0101", "a file cannot be read";
    TooLarge = "P0102", "a file is too large";
    NotUtf8 = "P0103", "a file is not UTF-8 text";
    Syntax = "P0104", "the YAML cannot be parsed";
    DuplicateKey = "P0105", "a key is given twice";
    UnknownAlias = "P0106", "an alias has no anchor";
    ExpansionTooLarge = "P0107", "aliases expand to too much";
    TooDeep = "P0108", "values are nested too deeply";
    UnknownTag = "P0109", "a YAML tag is not supported";
    SeveralDocuments = "P0110", "a file holds more than one YAML document";
    EmptyFile = "P0111", "a file defines nothing";
    KeyNotText = "P0112", "a key is not text";
    MergeKey = "P0113", "merge keys are not supported";
    UnquotedTemplate = "P0114", "a template is not quoted";

    UnknownField = "P0201", "a field is not known";
    MisplacedField = "P0202", "a field belongs to something else";
    MissingField = "P0203", "a required field is missing";
    WrongType = "P0204", "a value has the wrong type";
    UnknownWord = "P0205", "a word is not among those allowed";
    OutOfRange = "P0206", "a number is out of range";
    NameMismatch = "P0207", "the name is not the directory's";
    BadName = "P0208", "a name has characters that are not allowed";
    ReservedName = "P0209", "a name is reserved";
    DuplicateName = "P0210", "two steps have the same name";
    Empty = "P0211", "a value is empty";
    Contradiction = "P0212", "two fields contradict each other";
    BadDuration = "P0213", "a value is not a duration";
    BadCommand = "P0214", "a command cannot be split into words";
    BadCondition = "P0215", "a condition is malformed";
    NestedGroup = "P0216", "parallel groups are nested";
    NotAvailable = "P0217", "a definition needs another version of etude";
    BadDefault = "P0218", "a default does not fit its parameter";
    NoInterpreter = "P0219", "a script has no known interpreter";

    IdleWorker = "P0240", "a warm interpreter cannot run a step";
    NoSandbox = "P0241", "this machine cannot enforce a sandbox";

    UnclosedTemplate = "P0301", "a template is not closed";
    NotAReference = "P0302", "text in double braces is not a reference";
    UnknownStep = "P0303", "a reference names a step that does not exist";
    LaterStep = "P0304", "a reference names a step that runs later";
    OwnStep = "P0305", "a step refers to itself";
    SiblingStep = "P0306", "a reference names a step of the same group";
    UnknownInput = "P0307", "a reference names an input that is not declared";
    NoItem = "P0308", "`item` and `index` exist only with `for_each`";
    NoSuchValue = "P0309", "a reference names a value that the schema rules out";
    UnknownOutput = "P0310", "`output` names no step";
    UnknownPipeline = "P0311", "a step names a pipeline that does not exist";
    Recursion = "P0312", "a pipeline runs itself";
    BadBinding = "P0313", "the input given to a pipeline or tool does not fit";
    NotOneReference = "P0314", "a value must be exactly one reference";
    BrokenPipeline = "P0315", "a step runs a pipeline that has errors";
    UnknownSkill = "P0316", "a step names a skill that does not exist";
    NotATemplate = "P0317", "a reference stands in a field that is not a template";
    NestedTooDeep = "P0318", "pipelines run each other too deeply";
    TooManySteps = "P0319", "a pipeline has too many steps in all";
    Slip = "P0320", "a text looks like a reference or a file";

    MissingFile = "P0401", "a file does not exist";
    LeavesApp = "P0402", "a path leaves the app's directory";
    NotAFile = "P0403", "a path is not a regular file";
    SchemaNotJson = "P0404", "a schema file is not JSON";
    NotASchema = "P0405", "a file is not a JSON Schema";
    SchemaReference = "P0406", "a schema reference cannot be resolved";
    MissingScript = "P0407", "a command names a script that does not exist";
    UnusableScript = "P0408", "a script cannot be started as it is";

    NoPipelineFile = "P0501", "an entry of pipelines/ is not a pipeline";
    EndsInYml = "P0502", "a file is not read because its name ends in .yml";

    Extension = "P0601", "an extension beyond the protocol is used";

    StagePlaceholder = "P0702", "a placeholder of a stage cannot be resolved";
    OldPlaceholder = "P0703", "a placeholder is written in an old form";
    NoStages = "P0704", "a machine has no stages";
    UnknownStage = "P0705", "a reference names a stage that does not exist";
    DanglingJoin = "P0706", "a join is not in the list that it joins";
    TooFewSiblings = "P0707", "a fan-out has fewer than two entries";
    BadSource = "P0708", "a hook reads a value that is not available";
    NoElse = "P0709", "the cases of `next` are incomplete or unreachable";
    UnreachableStage = "P0710", "no transition leads to a stage";
    NoMachineFile = "P0711", "a directory below machines/ has no machine.yaml";
    UnknownMachine = "P0712", "a step names a machine that cannot be run";
    UnknownTool = "P0713", "a tool list names an unknown tool";

    BadSchedule = "P0801", "a schedule has no readable pattern";
    NoTimeZone = "P0802", "a cron pattern has no time zone";
    UnknownTimeZone = "P0803", "a time zone is not known";
    NotVerified = "P0804", "a webhook is not verified";
    UnsafeReceiver = "P0805", "a notice has no safe receiver";

    Demoted = "P0901", "a learned pipeline is demoted";
    EditedPipeline = "P0902", "a learned pipeline has changed since it was learned";

    NoFrontmatter = "P1101", "a file has no frontmatter";
    TooLong = "P1102", "a text is too long";
    NotPortable = "P1103", "a YAML notation is not portable";
    Shadowed = "P1104", "a skill or package is shadowed by another";
    ScanBound = "P1105", "a search reached its limit";
    DanglingLink = "P1106", "a symbolic link is broken";

    ForeignDialect = "P1201", "an APP.md belongs to another host";
    Derived = "P1202", "a missing field has a derived value";
    NotDeclared = "P1203", "a name is not declared";
    Repeated = "P1204", "a list has an entry twice";
    NotListed = "P1205", "a skill is not listed";
    MissingSection = "P1206", "a contract lacks a section";
    FileCase = "P1207", "a file's name is in the wrong case";

    NotACommand = "P1301", "a command is not declared";
    NotTrusted = "P1302", "a package is not trusted";
    Confirmation = "P1303", "a command waits for confirmation";
    NotFinished = "P1304", "a command did not finish";
    NotOneValue = "P1305", "stdout is not one JSON value";
    Mismatch = "P1306", "an output contradicts the contract";

    UnknownParent = "D0101", "a skill inherits from one that does not exist";
    InheritCycle = "D0102", "skills inherit from each other in a cycle";
    InconsistentInherit = "D0103", "the parents of a skill cannot be put in an order";
    OrderCycle = "D0104", "the order of a chain has a cycle";
    UnknownMergePolicy = "D0105", "a merge policy does not exist";
    BadAnnotation = "D0106", "an annotation of metadata has the wrong shape";
    BadSkillName = "D0107", "a skill's name has characters that are not allowed";
    PublicParams = "D0108", "a main skill gives its `params` to all skills";
    NoMainSkill = "D0109", "a project has no single main skill";
    ModuleNotLoaded = "D0110", "a JavaScript module cannot be loaded";
    TooManyParents = "D0111", "a skill inherits from too many others";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
