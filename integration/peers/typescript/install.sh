#!/bin/sh
# Installs the official TypeScript SDK for the tests, exactly as package-lock.json has it.
set -eu
cd "$(dirname "$0")"
npm ci --no-audit --no-fund
