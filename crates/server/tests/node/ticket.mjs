// Verifies a ticket with jose, which knows nothing of Tenure.
import { createLocalJWKSet, errors, jwtVerify } from 'jose';

const [ticket, text, forged] = process.argv.slice(2);
const keys = JSON.parse(text);
const options = { algorithms: ['EdDSA'], issuer: keys.cluster, typ: 'tenure-ticket+jwt' };
const verified = (it) => jwtVerify(it, createLocalJWKSet(keys), options);

const { payload } = await verified(ticket);
try {
  await verified(forged);
  throw new Error('a forged ticket was believed');
} catch (error) {
  if (!(error instanceof errors.JWSSignatureVerificationFailed)) throw error;
}
console.log(JSON.stringify(payload));
