//! Control tokens around the rows of images, by family.

/// Idefics 3 and SmolVLM.
pub(crate) const IDEFICS3_MARKS: &[&str] = &[
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    "<row_1_col_1>",
    "<row_1_col_2>",
    "<row_1_col_3>",
    "<row_1_col_4>",
    "<row_2_col_1>",
    "<row_2_col_2>",
    "<row_2_col_3>",
    "<row_2_col_4>",
    "<row_3_col_1>",
    "<row_3_col_2>",
    "<row_3_col_3>",
    "<row_3_col_4>",
    "<row_4_col_1>",
    "<row_4_col_2>",
    "<row_4_col_3>",
    "<row_4_col_4>",
];

/// Qwen2-VL and later.
pub(crate) const QWEN_MARKS: &[&str] = &["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"];

/// Pixtral and Mistral 3.
pub(crate) const PIXTRAL_MARKS: &[&str] = &["[IMG]", "[IMG_BREAK]", "[IMG_END]"];

/// LLaVA.
pub(crate) const LLAVA_MARKS: &[&str] = &["<image>"];

/// InternVL.
pub(crate) const INTERNVL_MARKS: &[&str] = &["<img>", "<IMG_CONTEXT>", "</img>"];

/// LFM2-VL.
pub(crate) const LFM2_MARKS: &[&str] = &[
    "<image>",
    "<|image_start|>",
    "<|image_end|>",
    "<|img_thumbnail|>",
    "<|img_row_1_col_1|>",
    "<|img_row_1_col_2|>",
    "<|img_row_2_col_1|>",
    "<|img_row_2_col_2|>",
];

/// MiniCPM-V.
pub(crate) const MINICPM_MARKS: &[&str] = &[
    "<image>",
    "</image>",
    "<slice>",
    "</slice>",
    "<image_id>",
    "</image_id>",
    "<|image_pad|>",
];

/// Gemma 3.
pub(crate) const GEMMA3_MARKS: &[&str] =
    &["<start_of_image>", "<image_soft_token>", "<end_of_image>"];

/// Gemma 4.
pub(crate) const GEMMA4_MARKS: &[&str] = &["<|image>", "<|image|>", "<image|>"];
