// Package doctor turns a running VPP into a list of findings: what the agent needs and VPP lacks, what is wrong and what is
// dangerous. Each finding has the line of startup.conf that corrects it.
//
//	Config ─▶ connect ─▶ ask: dumps, show messages, CLI commands that begin with "show", the stats socket
//	                       │
//	                       ▼
//	                     facts ─▶ judge (pure) ─▶ Report
//
// Invariant: doctor only reads VPP. A fact that VPP did not report is never OK: its verdict is Unknown.
package doctor
