//! The command `cargo run -p etude-fuzz -- TARGET FILE`, which repeats one input. Without arguments it lists the targets.

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [target, file] => etude_fuzz::run(target, &std::fs::read(file).expect("the input can be read")),
        _ => etude_fuzz::TARGETS.iter().for_each(|target| println!("{:<14} {}", target.name, target.about)),
    }
}
