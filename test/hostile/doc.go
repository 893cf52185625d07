// Package hostile turns a seed into a tenant that writes objects as large and as often as an API server takes them, beside a victim in
// another namespace, and measures what the victim notices.
//
// Invariant: in every attack the victim's change is programmed, its verdicts are right, and the agent stays within its memory.
package hostile
