//! Images on their way to descriptions, in each wire protocol: golden bytes.
//!
//! Promise (Images): while another model describes an image, clients of each protocol see that the request lives, in a form
//! that the protocol's own clients read over.

use super::*;
use crate::clock;
use crate::encoder::FrameWriter;
use crate::realtime_encoder::RealtimeEncoder;
use bytes::BytesMut;
use generate::images::DescriptionState;
use generate::output::event::Event;
use generate::stream_source::StreamMeta;

/// An image that waits for its description, one whose description was known, and one without.
const STATES: [(usize, DescriptionState); 3] = [
    (0, DescriptionState::Describing),
    (1, DescriptionState::Described { cached: true }),
    (1, DescriptionState::Failed),
];

fn source() -> Arc<StreamSource> {
    Arc::new(StreamSource::new(StreamMeta::unopened("m", clock::now())))
}

fn written(encoder: &mut dyn Encoder, framing: Framing) -> String {
    let mut bytes = BytesMut::new();
    let mut out = FrameWriter::new(framing, &mut bytes);
    for (index, state) in STATES {
        let count = 2;
        encoder.encode(
            &Event::Image {
                index,
                count,
                state,
            },
            &mut out,
        );
    }
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn image_in_progress_has_the_form_of_its_protocol() {
    const COMMENT: &str = ": describing image 1 of 2\n\n";
    const JOB: &str = concat!(
        "data: {\"type\":\"image\",\"index\":0,\"state\":\"describing\"}\n\n",
        "data: {\"type\":\"image\",\"index\":1,\"state\":\"described\",\"cached\":true}\n\n",
        "data: {\"type\":\"image\",\"index\":1,\"state\":\"failed\"}\n\n",
    );
    const UI: &str = concat!(
        "data: {\"type\":\"data-image\",\"id\":\"image-0\",\"data\":{\"index\":0,\"state\":\"describing\"},\"transient\":true}\n\n",
        "data: {\"type\":\"data-image\",\"id\":\"image-1\",\"data\":{\"index\":1,\"state\":\"described\",\"cached\":true},\"transient\":true}\n\n",
        "data: {\"type\":\"data-image\",\"id\":\"image-1\",\"data\":{\"index\":1,\"state\":\"failed\"},\"transient\":true}\n\n",
    );
    for (protocol, framing, want) in [
        (Protocol::Chat, Framing::Sse, COMMENT),
        (Protocol::Completion, Framing::Sse, COMMENT),
        (Protocol::Responses, Framing::Sse, COMMENT),
        (Protocol::LlamaCompletion, Framing::Sse, COMMENT),
        (
            Protocol::Messages,
            Framing::Sse,
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        ),
        (Protocol::AiSdkUi, Framing::Sse, UI),
        (Protocol::Job, Framing::Sse, JOB),
        (Protocol::OllamaChat, Framing::Ndjson, ""),
        (Protocol::OllamaGenerate, Framing::Ndjson, ""),
        (Protocol::OllamaChat, Framing::Sse, ""),
        (Protocol::Chat, Framing::Ndjson, ""),
    ] {
        let mut encoding = protocol.encoding(&source(), framing, EncoderSettings::default());
        let name = protocol.name();
        assert_eq!(
            written(&mut *encoding.encoder, framing),
            want,
            "{name}, {framing:?}"
        );
    }
}

#[test]
fn image_in_progress_is_a_message_of_a_socket() {
    let source = source();
    let text = written(&mut RealtimeEncoder::new(&source), Framing::WebSocket);
    let id = source.meta().id;
    let want = format!(
        "{{\"type\":\"image\",\"stream\":\"{id}\",\"index\":0,\"state\":\"describing\"}}\n\
         {{\"type\":\"image\",\"stream\":\"{id}\",\"index\":1,\"state\":\"described\",\"cached\":true}}\n\
         {{\"type\":\"image\",\"stream\":\"{id}\",\"index\":1,\"state\":\"failed\"}}\n"
    );
    assert_eq!(text, want);
}
