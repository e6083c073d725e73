//! A node to try by hand: `cargo run -p dendra-server --example node -- FOLDER [PORT] [os]`.
//!
//! Not here: options and logs (crate `dendra`).

use std::net::SocketAddr;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(folder) = args.next() else {
        eprintln!("give a folder");
        return ExitCode::from(2);
    };
    let port = args
        .next()
        .and_then(|port| port.parse().ok())
        .unwrap_or(8080);
    let mut settings = dendra_server::Settings::new(folder);
    settings.listen = vec![SocketAddr::from(([127, 0, 0, 1], port))];
    settings.admin = Some(SocketAddr::from((
        [127, 0, 0, 1],
        port.saturating_add(1000),
    )));
    if args.next().as_deref() == Some("os") {
        settings.durability = dendra_engine::Durability::Os;
    }
    let reason = dendra_server::serve(settings);
    eprintln!("{reason}");
    ExitCode::from(reason.exit_code())
}
