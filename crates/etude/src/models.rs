//! Models of hosted services, of other servers and of programs, for a [`Runner`](crate::Runner).
//!
//! The caller provides all settings: the providers with their keys, and the models of each tier.
//!
//! # A program as a model
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::{fs, sync::Arc};
//!
//! use etude::models::{ModelId, Models, ProviderKind, ProviderSettings, Settings, Tier};
//! use etude::{App, FileBlobs, Json, MemoryEngine, Request, Runner, Watch};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let home = dir.path();
//! fs::create_dir_all(home.join("pipelines/greet"))?;
//! fs::write(
//!     home.join("pipelines/greet/pipeline.yaml"),
//!     "name: greet\ndescription: Greet a person.\nsteps:\n  - {name: hello, type: llm, prompt: Greet Ada.}\n",
//! )?;
//! let app = App::open(home)?;
//! let definition = app.pipeline("greet").expect("the pipeline is valid");
//!
//! let mut provider = ProviderSettings::new("echo", ProviderKind::Command);
//! provider.command = vec!["echo".to_owned(), "Hello Ada".to_owned()];
//! let model = ModelId::parse("echo/any").expect("it has both parts");
//! let models = Models::new(Settings {
//!     providers: vec![provider],
//!     mapping: BTreeMap::from([(Tier::Standard, vec![model])]),
//!     app_dir: home.to_owned(),
//!     ..Settings::default()
//! })?;
//!
//! let engine = Arc::new(MemoryEngine::new(Arc::new(FileBlobs::new(home.join("blobs"), false))));
//! let runner = Runner::new(engine, Arc::new(models), home.join("scratch"));
//! let request = Request::new(Json::trusted("{}"), String::new());
//! let result = runner.start(&definition, app.disk(), request, Watch::new(&mut |_| {})).await?;
//! let output = result.document.output.expect("a run that succeeded has an output");
//! assert_eq!(&*output.text()?, "\"Hello Ada\"");
//! # Ok(())
//! # }
//! ```
//!
//! # A hosted service
//!
//! Nothing is contacted before the first call.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use etude::models::{ModelId, Models, ProviderKind, ProviderSettings, Secret, Settings, Tier};
//!
//! let mut provider = ProviderSettings::new("anthropic", ProviderKind::Anthropic);
//! provider.api_key = Some(Secret::new("the key"));
//! let model = ModelId::parse("anthropic/claude-haiku-4-5").expect("it has both parts");
//! let mapping = BTreeMap::from([(Tier::Lite, vec![model])]);
//! Models::new(Settings { providers: vec![provider], mapping, ..Settings::default() })?;
//! # Ok::<(), etude::models::SettingsError>(())
//! ```

use std::fmt;
use std::sync::Arc;

use etude_core::model::{CallFailure, ModelResponse, Request};
use etude_core::tool::ToolCalling;
use etude_runtime::host::{Boxed, ModelPort, OnDelta};

pub use etude_core::model::Tier;
pub use etude_models::{
    ModelId, Price, Prices, ProviderKind, ProviderSettings, Secret, Settings, SettingsError, TransportPolicy,
};

/// A model port with fixed settings.
#[derive(Clone)]
pub struct Models(Arc<etude_models::Models>);

impl Models {
    /// Checks and takes the settings. Nothing is read, opened or contacted.
    ///
    /// # Errors
    /// The settings cannot work for any request.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        Ok(Self(Arc::new(etude_models::Models::new(settings)?)))
    }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Settings hold keys, so they are not shown.
        f.write_str("Models")
    }
}

impl ModelPort for Models {
    fn call(&self, request: Request) -> Boxed<Result<ModelResponse, CallFailure>> {
        let models = Arc::clone(&self.0);
        Box::pin(async move { models.call(&request).await })
    }

    fn call_streaming(&self, request: Request, on_delta: OnDelta) -> Boxed<Result<ModelResponse, CallFailure>> {
        let models = Arc::clone(&self.0);
        Box::pin(async move { models.call_streaming(&request, &*on_delta).await })
    }

    fn call_watched(&self, request: Request, on_delta: OnDelta) -> Boxed<Result<ModelResponse, CallFailure>> {
        let models = Arc::clone(&self.0);
        Box::pin(async move { models.call_watched(&request, &*on_delta).await })
    }

    fn tool_calling(&self, tier: Tier) -> Boxed<(String, ToolCalling)> {
        let answer = (self.0.describe(tier).unwrap_or_default(), self.0.tool_calling(tier));
        Box::pin(std::future::ready(answer))
    }

    fn window_tokens(&self, tier: Tier) -> Boxed<Option<u64>> {
        Box::pin(std::future::ready(self.0.window_tokens(tier)))
    }

    fn unpriced(&self, tier: Tier) -> Boxed<Vec<String>> {
        Box::pin(std::future::ready(self.0.unpriced(tier)))
    }
}
