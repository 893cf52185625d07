// Package doctor turns a running VPP into a list of findings: what the agent needs of it and is missing, wrong or dangerous,
// each with the line of startup.conf that mends it.
//
//	Config ─▶ connect ─▶ ask: dumps, show messages, CLI commands that begin with "show", the stats socket
//	                       │
//	                       ▼
//	                     facts ─▶ judge (pure) ─▶ Report
//
// Invariant: VPP is only read, and what it did not say is never called fine: it is Unknown.
package doctor
