use etude_route::{Embedder, Route, Router, Verdict};

use crate::table::{first, router, routes};

/// Number of `requests` that reach their route. Prints the decision of each other one.
fn reached(requests: &[(&str, &str)]) -> usize {
    let router = router();
    let mut right = 0;
    for (request, expected) in requests {
        let decision = router.decide(request);
        if decision.best.as_deref() == Some(*expected) {
            right += 1;
        } else {
            println!(
                "{request}: {:?} {} {:.2} {:?}",
                decision.verdict,
                first(&decision),
                decision.score,
                decision.signals
            );
        }
    }
    right
}

/// a trigger is sure, whatever its case, punctuation and spacing.
#[test]
fn exact_trigger_is_sure() {
    let router = router();
    for route in routes() {
        for trigger in route.triggers.iter().chain([&route.name]) {
            for request in [trigger.clone(), trigger.to_uppercase(), format!("  {trigger}!! ")] {
                let decision = router.decide(&request);
                assert_eq!(decision.best.as_deref(), Some(route.name.as_str()), "{request}");
                assert_eq!(decision.verdict, Verdict::Sure, "{request}");
            }
        }
    }
}

#[test]
fn paraphrases_reach_their_route() {
    let requests = [
        ("can you review the code on my branch?", "code-review"),
        ("please check pull request 482 for bugs", "code-review"),
        ("look at my changes before merging them", "code-review"),
        ("any security problems in this diff?", "code-review"),
        ("draft release notes for v2.3", "release-notes"),
        ("I need a changelog since the last tag", "release-notes"),
        ("list what has changed since the previous release", "release-notes"),
        ("are there duplicate rows in customers.csv", "csv-audit"),
        ("check orders.csv for missing values", "csv-audit"),
        ("make our docs searchable please", "doc-index"),
        ("the documentation index is stale, rebuild it", "doc-index"),
        ("write up a postmortem for last night's outage", "incident-summary"),
        ("give me a timeline of the incident", "incident-summary"),
        ("translate these strings to Spanish", "translate-strings"),
        ("we need the app in french", "translate-strings"),
        ("roll the new version out to production", "deploy-service"),
        ("deploy the billing service on staging", "deploy-service"),
        ("how much money did I spend in May?", "expense-report"),
        ("total my receipts by category", "expense-report"),
        ("prepare the monthly expenses", "expense-report"),
    ];
    assert!(reached(&requests) >= 18);
}

#[test]
fn typos_reach_their_route() {
    let requests = [
        ("reveiw my cod", "code-review"),
        ("chekc this pul request", "code-review"),
        ("wirte the relase notes", "release-notes"),
        ("genrate a chagnelog", "release-notes"),
        ("audti this csv", "csv-audit"),
        ("find duplciates in my tabel", "csv-audit"),
        ("indx the documentaton", "doc-index"),
        ("write a post-mortem", "incident-summary"),
        ("sumarize the outtage", "incident-summary"),
        ("tranlsate the app into germann", "translate-strings"),
        ("depoly to prodction", "deploy-service"),
        ("make my expence reprot", "expense-report"),
    ];
    assert!(reached(&requests) >= 11);
}

#[test]
fn chinese_requests_reach_their_route() {
    let requests = [
        ("帮我审查一下代码", "code-review"),
        ("请看看我的PR", "code-review"),
        ("写一份发布说明", "release-notes"),
        ("检查一下这个表格的数据", "csv-audit"),
        ("给文档建个索引", "doc-index"),
        ("总结昨晚的故障", "incident-summary"),
        ("把这些文字翻译成英文", "translate-strings"),
        ("把服务部署到生产", "deploy-service"),
        ("我要生成这个月的报销单", "expense-report"),
    ];
    assert!(reached(&requests) >= 8);
}

/// a request that fits nothing must be reported as such.
#[test]
fn foreign_requests_are_rejected() {
    let router = router();
    let requests = [
        "what's the weather like in Paris tomorrow",
        "book a table for two at eight",
        "tell me a joke",
        "who won the world cup in 1998",
        "play some jazz",
        "turn off the lights in the kitchen",
        "how do I bake sourdough bread",
        "remind me to call my mother",
        "明天天气怎么样",
        "给我讲个笑话",
        "今日の天気は",
        "สวัสดีครับ",
    ];
    let kept: Vec<_> = requests.iter().map(|r| (r, router.decide(r))).filter(|d| d.1.best.is_some()).collect();
    assert!(kept.len() <= 1, "{kept:?}");
    assert!(kept.iter().all(|d| d.1.verdict != Verdict::Sure), "{kept:?}");
}

#[test]
fn descriptions_alone_are_enough_to_choose() {
    let bare: Vec<Route> = routes().into_iter().map(|route| Route { triggers: Vec::new(), ..route }).collect();
    let router = Router::new(&bare);
    for (request, expected) in [
        ("review this pull request for security bugs", "code-review"),
        ("write release notes from the last commits", "release-notes"),
        ("check the csv for duplicate rows", "csv-audit"),
        ("deploy the service to production", "deploy-service"),
        ("make an expense report", "expense-report"),
    ] {
        let decision = router.decide(request);
        assert_eq!(decision.best.as_deref(), Some(expected), "{request}: {decision:?}");
    }
}

#[test]
fn what_was_pasted_does_not_drown_the_request() {
    let log = "2026-01-01T00:00:00Z worker-7 connection reset by peer while reading frame header\n".repeat(400);
    for request in
        [format!("write a postmortem of this outage:\n{log}"), format!("{log}\nwrite a postmortem of this outage")]
    {
        assert_eq!(router().decide(&request).best.as_deref(), Some("incident-summary"));
    }
}

#[test]
fn evidence_names_the_words_that_decided() {
    let decision = router().decide("could you please deploy the frobnicator to production");
    let words: Vec<&str> = decision.why.iter().take(2).map(|e| e.text.as_str()).collect();
    assert!(words.contains(&"deploy") && words.contains(&"production"), "{:?}", decision.why);
    assert!(decision.why.windows(2).all(|w| w[0].weight.abs() >= w[1].weight.abs()));
    let chinese = router().decide("部署到生产环境");
    assert_eq!(chinese.why[0].text, "部署到生产环境");
}

struct Meanings;

impl Embedder for Meanings {
    /// One axis per topic: enough to make shipping and publishing the same.
    fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        let topics: [&[&str]; 3] = [
            &["deploy", "ship", "roll out", "publish", "go live"],
            &["expense", "receipt", "spend", "costs"],
            &["review", "code"],
        ];
        let axis = |text: &str, words: &[&str]| if words.iter().any(|w| text.contains(w)) { 1.0 } else { 0.05 };
        texts.iter().map(|text| topics.iter().map(|words| axis(&text.to_lowercase(), words)).collect()).collect()
    }
}

#[test]
fn meaning_finds_what_words_do_not_share() {
    let router = Router::with_embeddings(&routes(), &Meanings);
    let request = "let us go live";
    assert_ne!(router.decide(request).best.as_deref(), Some("deploy-service"));
    let decision = router.decide_with(request, &Meanings);
    assert_eq!(first(&decision), "deploy-service");
    assert!(decision.signals.semantic);
}

/// `Meanings` with one more axis, which no text uses.
struct Wider;

impl Embedder for Wider {
    fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        Meanings.embed(texts).into_iter().map(|axes| [axes, vec![0.0]].concat()).collect()
    }
}

/// a table whose routes are trained at once has its own cuts, so that it does not accept more foreign requests.
#[test]
fn cuts_follow_the_way_of_training() {
    let router = Router::with_embeddings(&routes(), &Wider);
    // Requests from an unknown topic to expenses.
    let vector = |share: f32| [0.0, share, 0.0, 1.0 - share];
    let decide = |step: u16| router.decide_with_vector("zzz", &vector(f32::from(step) / 2000.0));
    let decisions: Vec<_> = (0..=2000).map(decide).collect();
    let between = |from: f64, to: f64| {
        let verdicts: Vec<_> = decisions.iter().filter(|d| (from..to).contains(&d.score)).map(|d| d.verdict).collect();
        assert!(!verdicts.is_empty(), "no score from {from} to {to}");
        verdicts
    };
    assert!(between(0.25, 0.29).iter().all(|verdict| *verdict == Verdict::Rejected));
    assert!(between(0.29, 0.84).iter().all(|verdict| *verdict == Verdict::Doubtful));
    assert!(between(0.84, 1.0).iter().all(|verdict| *verdict == Verdict::Sure));
}

struct Broken(usize);

impl Embedder for Broken {
    fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        texts.iter().enumerate().map(|(at, _)| vec![f32::NAN; self.0 * (at % 2)]).collect()
    }
}

#[test]
fn unusable_vectors_leave_the_lexical_router() {
    for width in [0, 3] {
        let router = Router::with_embeddings(&routes(), &Broken(width));
        assert_eq!(router.decide("review my branch"), crate::table::router().decide("review my branch"));
    }
    let router = Router::with_embeddings(&routes(), &Meanings);
    let plain = crate::table::router().decide("review my branch");
    assert_eq!(router.decide_with("review my branch", &Broken(9)), plain);
}
