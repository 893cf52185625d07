// Package browser opens the page of contiv-agent ui in a headless Chromium: clusters of 15 and of 1,000 pods → interactions that have to work, the
// pictures of docs/ui.md, and times. It is a separate module because the driver of Chromium is.
//
// Invariant: without Chromium every test is skipped, and says so.
package browser
