// Package interim turns wanted lists and tables into the changes of a sink: a change that could let a wrong packet pass is made by an interim state.
//
//	Enlist, tables of the store ─▶ change ─▶ shifts: what it opens and closes ─▶ package conflict ─┬─▶ what conflicts with nothing: sent
//	                                                                                              ├─▶ torn: the common part is sent first
//	                                                                                              └─▶ waits: a part of the next change
//
// Invariant: while a change is half done, in any order of interfaces, no packet passes that the states before and after both deny, and every packet
// passes that both permit, within the bounds of a table (both.go).
package interim
