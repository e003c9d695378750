"""The steps of the exchange, each in its own file, none knowing the order.

`turn` reads a request, `sight` looks at the ledger and measures, `pressure` packs in time, `recovery`
packs after a refusal and asks for proof, `packing` hands a conversation to the compactor, `relay`
gives the reply on, `healing` draws the conclusions, `report` tells what happened.
"""
